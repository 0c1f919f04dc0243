// What the stock Go client offers beside plain messages: FEATURE NAMESRV TOPIC GROUP.
//
// Each feature sends its messages to a topic of one queue and consumes them. Reports are JSON lines
// on standard output; test_other_features.py judges them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	// A client looks for the topic of its retries each 30 s, and for its queues each 20 s.
	patience = 60 * time.Second
	// What comes too much comes soon after the last message that was wanted.
	surplus = time.Second
)

type line map[string]any

var outLock sync.Mutex

func say(one line) {
	text, err := json.Marshal(one)
	if err != nil {
		panic(err)
	}
	outLock.Lock()
	defer outLock.Unlock()
	fmt.Println(string(text))
}

// site is where one feature plays.
type site struct {
	feature, namesrv, topic, group string
	heard                          atomic.Int64
	suspended                      atomic.Bool
}

// expected is the number of messages that consumers are given.
var expected = map[string]int64{
	"tags": 2, "sql": 2, "broadcast": 8, "orderly": 5, "retry": 3, "delay": 2,
	"transaction": 2, "ways": 4,
}

// credentials is empty, which signs nothing, when the environment has no account.
func credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey: os.Getenv("INTEROP_ACCESS_KEY"),
		SecretKey: os.Getenv("INTEROP_SECRET_KEY"),
	}
}

func (s *site) producer() (rocketmq.Producer, error) {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{s.namesrv}),
		producer.WithGroupName(s.group+"_senders"),
		producer.WithInstanceName(s.group+"_senders"),
		producer.WithSendMsgTimeout(patience),
		producer.WithCredentials(credentials()),
	)
	if err != nil {
		return nil, err
	}
	return sender, sender.Start()
}

func (s *site) message(body string) *primitive.Message {
	return primitive.NewMessage(s.topic, []byte(body))
}

func (s *site) send() error {
	if s.feature == "transaction" {
		return s.sendTransactions()
	}
	sender, err := s.producer()
	if err != nil {
		return err
	}
	background := context.Background()
	var messages []*primitive.Message
	switch s.feature {
	case "tags":
		for _, color := range []string{"red", "green", "blue"} {
			messages = append(messages, s.message(color).WithTag(color))
		}
	case "sql":
		for _, weight := range []string{"4", "5", "6", "7"} {
			one := s.message("w" + weight)
			one.WithProperty("weight", weight)
			messages = append(messages, one)
		}
	case "delay":
		for _, level := range []int{1, 2} {
			messages = append(messages, s.message(fmt.Sprint("level-", level)).WithDelayTimeLevel(level))
		}
	case "retry":
		messages = append(messages, s.message("m0"))
	case "ways":
		return s.sendEachWay(sender)
	default:
		for i := 0; i < 4; i++ {
			messages = append(messages, s.message(fmt.Sprint("m", i)))
		}
	}
	for _, one := range messages {
		if _, err := sender.SendSync(background, one); err != nil {
			return err
		}
	}
	return nil
}

// sendEachWay sends two messages at once, one whose answer comes later, and one without an answer.
func (s *site) sendEachWay(sender rocketmq.Producer) error {
	background := context.Background()
	if _, err := sender.SendSync(background, s.message("batch-0"), s.message("batch-1")); err != nil {
		return err
	}
	answered := make(chan error, 1)
	err := sender.SendAsync(background, func(_ context.Context, _ *primitive.SendResult, err error) {
		answered <- err
	}, s.message("later"))
	if err == nil {
		err = <-answered
	}
	if err != nil {
		return err
	}
	return sender.SendOneWay(background, s.message("one-way"))
}

// ends is what a producer says of its transactions: at once, and when it is asked.
type ends struct{}

func (ends) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (ends) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say(line{"event": "checked", "body": string(message.Body)})
	if string(message.Body) == "commit-later" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (s *site) sendTransactions() error {
	sender, err := rocketmq.NewTransactionProducer(ends{},
		producer.WithNameServer([]string{s.namesrv}),
		producer.WithGroupName(s.group+"_senders"),
		producer.WithSendMsgTimeout(patience),
		producer.WithCredentials(credentials()),
	)
	if err == nil {
		err = sender.Start()
	}
	for _, body := range []string{"commit", "rollback", "commit-later", "rollback-later"} {
		if err != nil {
			return err
		}
		_, err = sender.SendMessageInTransaction(context.Background(), s.message(body))
	}
	return err
}

func (s *site) consume(number int) error {
	model := consumer.Clustering
	if s.feature == "broadcast" {
		model = consumer.BroadCasting
	}
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{s.namesrv}),
		consumer.WithGroupName(s.group),
		consumer.WithInstance(fmt.Sprint(s.group, number)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(s.feature == "orderly"),
		consumer.WithRebalanceLockInterval(time.Second),
		consumer.WithCredentials(credentials()),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{}
	switch s.feature {
	case "tags":
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: "red || blue"}
	case "sql":
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: "weight > 5"}
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			if result := s.take(number, message); result != consumer.ConsumeSuccess {
				return result, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := receiver.Subscribe(s.topic, selector, take); err != nil {
		return err
	}
	return receiver.Start()
}

// take reports a message and tells what became of it.
func (s *site) take(number int, message *primitive.MessageExt) consumer.ConsumeResult {
	body := string(message.Body)
	say(line{
		"event": "message", "body": body, "again": message.ReconsumeTimes, "consumer": number,
		"waited": time.Now().UnixMilli() - message.BornTimestamp,
	})
	s.heard.Add(1)
	switch {
	case s.feature == "retry" && message.ReconsumeTimes < 2:
		return consumer.ConsumeRetryLater
	case s.feature == "orderly" && body == "m1" && !s.suspended.Swap(true):
		return consumer.SuspendCurrentQueueAMoment
	}
	return consumer.ConsumeSuccess
}

func main() {
	rlog.SetLogLevel("fatal")
	s := &site{feature: os.Args[1], namesrv: os.Args[2], topic: os.Args[3], group: os.Args[4]}
	consumers := 1
	if s.feature == "broadcast" {
		consumers = 2
	}
	for number := 0; number < consumers; number++ {
		if err := s.consume(number); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := s.send(); err != nil {
		say(line{"event": "refused", "reason": err.Error()})
	}
	for end := time.Now().Add(patience); s.heard.Load() < expected[s.feature] && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(surplus)
	say(line{"event": "done", "count": s.heard.Load()})
}
