// The stock Go client as the interop suite drives it.
//
// Modes: send a corpus file, consume a topic. Reports are JSON lines on standard output;
// tests/interop/README.md describes them.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	sendTimeout     = 15 * time.Second
	sendAttemptsMax = 5
)

// report is one line for the suite; unused members are left out.
type report struct {
	Event      string            `json:"event"`
	Seq        *int              `json:"seq,omitempty"`
	Attempts   int               `json:"attempts,omitempty"`
	Queue      *int              `json:"queue,omitempty"`
	Offset     *int64            `json:"offset,omitempty"`
	Again      *int32            `json:"again,omitempty"`
	Size       *int              `json:"size,omitempty"`
	Sha256     string            `json:"sha256,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Count      *int              `json:"count,omitempty"`
	Failed     *int              `json:"failed,omitempty"`
	Seconds    *float64          `json:"seconds,omitempty"`
}

var (
	outLock sync.Mutex
	out     = bufio.NewWriterSize(os.Stdout, 1<<16)
)

func say(line report) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	outLock.Lock()
	defer outLock.Unlock()
	out.Write(text)
	out.WriteByte('\n')
	out.Flush()
}

// item is one message of a corpus file: 4 head size, head, 4 body size, body.
type item struct {
	seq, lane  int
	tags, keys string
	properties map[string]string
	body       []byte
}

func readBlock(source io.Reader) ([]byte, error) {
	var size int32
	if err := binary.Read(source, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	block := make([]byte, size)
	_, err := io.ReadFull(source, block)
	return block, err
}

func readItem(source io.Reader) (*item, error) {
	head, err := readBlock(source)
	if err != nil {
		return nil, err
	}
	body, err := readBlock(source)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(head), "\n")
	seq, _ := strconv.Atoi(lines[0])
	lane, _ := strconv.Atoi(lines[1])
	one := &item{seq, lane, lines[2], lines[3], map[string]string{}, body}
	for _, line := range lines[4:] {
		name, value, _ := strings.Cut(line, "=")
		one.properties[name] = value
	}
	return one, nil
}

// laneSelector puts a message into the queue that its lane names.
type laneSelector struct{}

func (laneSelector) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	seq, _ := strconv.Atoi(m.GetProperty("seq"))
	for _, queue := range queues {
		if queue.QueueId == seq%len(queues) {
			return queue
		}
	}
	return nil
}

// Empty, which signs nothing, when the environment has no account.
func credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey: os.Getenv("INTEROP_ACCESS_KEY"),
		SecretKey: os.Getenv("INTEROP_SECRET_KEY"),
	}
}

func send(namesrv, topic, group, corpus string, queues int) error {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithQueueSelector(laneSelector{}),
		producer.WithRetry(0),
		producer.WithCredentials(credentials()),
	)
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	file, err := os.Open(corpus)
	if err != nil {
		return err
	}
	defer file.Close()
	begin := time.Now()
	var sent, failed atomic.Int64
	var lanes sync.WaitGroup
	inboxes := make([]chan *item, queues)
	for i := range inboxes {
		inboxes[i] = make(chan *item, 16)
		lanes.Add(1)
		go func(inbox chan *item) {
			defer lanes.Done()
			for one := range inbox {
				if sendOne(sender, topic, one) {
					sent.Add(1)
				} else {
					failed.Add(1)
				}
			}
		}(inboxes[i])
	}
	source := bufio.NewReaderSize(file, 1<<16)
	for {
		one, err := readItem(source)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		inboxes[one.lane%queues] <- one
	}
	for _, inbox := range inboxes {
		close(inbox)
	}
	lanes.Wait()
	done(int(sent.Load()), int(failed.Load()), time.Since(begin))
	return sender.Shutdown()
}

func sendOne(sender rocketmq.Producer, topic string, one *item) bool {
	for attempt := 1; attempt <= sendAttemptsMax; attempt++ {
		message := primitive.NewMessage(topic, one.body)
		message.WithProperties(maps.Clone(one.properties))
		message.WithTag(one.tags).WithKeys(strings.Split(one.keys, " "))
		result, err := sender.SendSync(context.Background(), message)
		if err == nil && result.Status == primitive.SendOK {
			say(report{
				Event: "sent", Seq: &one.seq, Attempts: attempt,
				Queue: &result.MessageQueue.QueueId, Offset: &result.QueueOffset,
			})
			return true
		}
		reason := ""
		if err != nil {
			reason = err.Error()
		} else {
			reason = fmt.Sprintf("status %d", result.Status)
		}
		say(report{Event: "refused", Seq: &one.seq, Reason: reason})
		time.Sleep(time.Duration(attempt) * 200 * time.Millisecond)
	}
	return false
}

func consume(namesrv, topic, group string, expect int, idle time.Duration, orderly bool) error {
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumerOrder(orderly),
		consumer.WithPullThresholdSizeForQueue(32),
		consumer.WithCredentials(credentials()),
	)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	places := map[[2]int64]bool{}
	begin := time.Now()
	last := begin
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			digest := sha256.Sum256(message.Body)
			size := len(message.Body)
			say(report{
				Event: "message", Queue: &message.Queue.QueueId, Offset: &message.QueueOffset,
				Again: &message.ReconsumeTimes, Size: &size, Sha256: hex.EncodeToString(digest[:]),
				Properties: message.GetProperties(),
			})
			lock.Lock()
			places[[2]int64{int64(message.Queue.QueueId), message.QueueOffset}] = true
			last = time.Now()
			lock.Unlock()
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := receiver.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
		return err
	}
	if err := receiver.Start(); err != nil {
		return err
	}
	say(report{Event: "ready"})
	count := 0
	for {
		lock.Lock()
		count = len(places)
		quiet := time.Since(last)
		lock.Unlock()
		if count >= expect || quiet > idle {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	lock.Lock()
	seconds := last.Sub(begin)
	lock.Unlock()
	time.Sleep(time.Second)
	err = receiver.Shutdown()
	done(count, 0, seconds)
	return err
}

func done(count, failed int, took time.Duration) {
	seconds := took.Seconds()
	say(report{Event: "done", Count: &count, Failed: &failed, Seconds: &seconds})
}

func main() {
	mode := os.Args[1]
	flags := flag.NewFlagSet(mode, flag.ExitOnError)
	namesrv := flags.String("namesrv", "", "address of the name server")
	topic := flags.String("topic", "", "topic")
	group := flags.String("group", "", "producer or consumer group")
	corpus := flags.String("corpus", "", "file of messages to send")
	queues := flags.Int("queues", 4, "queues of the topic")
	expect := flags.Int("expect", 1<<30, "stop after so many different messages")
	idle := flags.Int("idle", 60, "stop after so many seconds without a message")
	orderly := flags.String("orderly", "", "any text: consume queue by queue")
	if err := flags.Parse(os.Args[2:]); err != nil {
		panic(err)
	}
	rlog.SetLogLevel("error")
	var err error
	if mode == "send" {
		err = send(*namesrv, *topic, *group, *corpus, *queues)
	} else {
		err = consume(*namesrv, *topic, *group, *expect, time.Duration(*idle)*time.Second, *orderly != "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
