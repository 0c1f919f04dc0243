"""OtlpSide: what a broker sends to a collector of OpenTelemetry, bound to its parts.

Loaded only where a collector is configured: it is the one way to OpenTelemetry.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError, succeed

from ledgermq import __version__
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.http_pulse import Pulse
from ledgermq.broker.service.metric_sources import MetricSources
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.telemetry.budget import Budget
from ledgermq.broker.telemetry.exporting import Exporting
from ledgermq.broker.telemetry.metric_values import Reading
from ledgermq.broker.telemetry.pull_spans import PullSpans
from ledgermq.broker.telemetry.send_spans import SendSpans
from ledgermq.broker.telemetry.spans import Spans
from ledgermq.dledger.store.disk_thread import DiskThread
from ledgermq.state.errors import ConfigError

_NS_IN_MS: Final = 1_000_000
# At a stop, what a collector has not taken by then is lost.
_CLOSE_S: Final = 3.0


class OtlpSide:
    """The exporters and what feeds them; for composition only."""

    def __init__(
        self,
        ground: Ground,
        serving: Callable[[], Serving | None],
        sources: MetricSources | None,
    ) -> None:
        """Sends nothing yet.

        Args:
            serving: the parts that need the broker's port; None before there are any.
            sources: of metrics, where the HTTP port has them; None: own ones.

        Raises:
            ConfigError: OpenTelemetry is not installed.
        """
        config = ground.config
        self._ground = ground
        # Only who has the HTTP port samples the reactor already.
        self._pulse: Pulse | None = None
        if sources is None:
            self._pulse = Pulse(ground.reactor)
            sources = MetricSources(ground, serving, self._pulse)
        self._sources = sources
        self._started_ns = ground.now_ms() * _NS_IN_MS
        attributes = {
            "service.name": "ledgermq",
            "service.namespace": config.cluster_name,
            "service.instance.id": f"{config.broker_name}/{config.ledger_self_id}",
            "service.version": __version__,
        }
        try:
            self._exporting = Exporting(config.otlp_endpoint, attributes, __version__)
        except ImportError as error:
            allowed = "nothing, as long as LedgerMQ's extra otel is not installed"
            raise ConfigError("otlpEndpoint", config.otlp_endpoint, allowed) from error
        self._thread = DiskThread("otlp")
        # Of the reading under way; None while there is none, and while one is sent.
        self._steps: Iterator[None] | None = None
        self._reading: Reading | None = None
        self._is_sending = False
        self._call: Any = None
        self._is_stopped = False

    def watch(self, serving: Serving) -> None:
        """Begins; spans are made from now on, and metrics are read from time to time."""
        config, ground = self._ground.config, self._ground
        if config.otlp_spans_per_s:
            spans = Spans(
                self._exporting.provider,
                broker_name=config.broker_name,
                store_host_hex=serving.store_host_hex,
                clock_ms=ground.clock_ms,
                now_ms=ground.now_ms,
            )
            budget = Budget(config.otlp_spans_per_s)
            serving.proposals.spans = SendSpans(spans.stored, budget, ground.clock_ms)
            serving.processors.pulls.spans = PullSpans(spans.gave, budget, ground.clock_ms)
        if self._pulse is not None:
            self._pulse.start()
        if config.otlp_metrics_s:
            ground.schedule.every(config.otlp_metrics_s * 1000, self.read)

    def read(self) -> None:
        """Begins a reading, unless the one before is still on its way."""
        if self._reading is not None or self._is_sending or self._is_stopped:
            return
        now_ns = self._ground.now_ms() * _NS_IN_MS
        self._reading = Reading(self._sources.common, self._started_ns, now_ns)
        self._steps = self._reading.steps(self._sources.groups())
        self._call = self._ground.reactor.callLater(0, self._step)

    def _step(self) -> None:
        self._call = None
        reading, steps = self._reading, self._steps
        assert reading is not None and steps is not None
        try:
            next(steps)
        except StopIteration:
            self._reading = self._steps = None
            self._send(reading)
        except Exception:
            # A table changed between two steps in a way that the reading does not bear.
            self._reading = self._steps = None
            raise
        else:
            self._call = self._ground.reactor.callLater(0, self._step)

    def _send(self, reading: Reading) -> None:
        self._is_sending = True
        self._in_thread(self._exporting.send_metrics, reading.metrics).addBoth(self._sent)

    def _sent(self, _: object) -> None:
        self._is_sending = False

    def _in_thread(self, function: Callable[..., None], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        reactor = self._ground.reactor

        def answer(is_done: bool, result: Any) -> None:
            reactor.callFromThread(done.callback if is_done else done.errback, result)

        self._thread.callInThreadWithCallback(answer, function, *arguments)
        return done

    def stop(self) -> Deferred[Any]:
        """Fires when what waits is sent, or the collector has had its time; never fails."""
        if self._is_stopped:
            return succeed(None)
        self._is_stopped = True
        if self._pulse is not None:
            self._pulse.stop()
        if self._call is not None:
            self._call.cancel()
            self._call = None
        closed = self._in_thread(self._exporting.close)
        closed.addTimeout(_CLOSE_S, self._ground.reactor)

        def ended(result: Any) -> None:
            if result is None:
                self._thread.stop()

        # The thread that waits for a collector ends with the process.
        closed.addErrback(lambda failure: failure.trap(TimeoutError))
        return closed.addBoth(ended)
