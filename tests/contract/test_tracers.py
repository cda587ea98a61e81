"""OpenTelemetry around each kind of consumer: the spans of a RemoteConsumer are those of the plain one."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.contract.kinds import Consumers
from tests.contract.material import TIMEOUT_S, Material

# In a process of its own, for it replaces names of confluent_kafka. The class is the how-to's.
READ = """
import json, sys
from opentelemetry.instrumentation.confluent_kafka import AutoInstrumentedConsumer, ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)

import confluent_kafka
from remote_fetch import RemoteConsumer

class TracedConsumer(AutoInstrumentedConsumer, RemoteConsumer):
    pass

is_plain, config, topic, count = json.loads(sys.argv[1])
consumer = (confluent_kafka.Consumer if is_plain else TracedConsumer)(config)
consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
polled, consumed = [], 0
while len(polled) < count // 2:
    polled += [message for message in [consumer.poll(1.0)] if message is not None]
while len(polled) + consumed < count:
    consumed += len(consumer.consume(count // 2, 1.0))
requests = 0 if is_plain else consumer.remote_metrics()["remote-fetch-requests-total"]
consumer.close()
spans = [[span.name, span.attributes.get("messaging.message.id")] for span in exporter.get_finished_spans()]
of_some_length = [f"{topic}.0.{message.offset()}" for message in polled if message]  # OpenTelemetry asks for its truth
print(json.dumps([requests, of_some_length, spans]))
"""


def test_there_is_a_span_for_each_record_and_for_nothing_else(consumers: Consumers, material: Material) -> None:
    kind = consumers.kind
    given = [kind.enabled is None, consumers.config(), material.topic, material.tier_end]
    command = [sys.executable, "-c", READ, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    requests, polled, spans = json.loads(done.stdout)
    assert (requests > 0) is bool(kind.enabled)
    assert [message_id for _, message_id in spans if message_id is not None] == polled
    assert {name for name, _ in spans} == {"recv", f"{material.topic} process"}
