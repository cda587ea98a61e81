"""A service's consumer that reads tiered records from the store. One class name and two keys are new.

    python 04_remote_consumer.py BOOTSTRAP_SERVERS TIER_URL TOPIC

`make broker` prints an address, a directory and a topic to try it on.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaError, KafkaException

from remote_fetch import RemoteConsumer

if len(sys.argv) != 4:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic = sys.argv[1:]

consumer = RemoteConsumer(
    {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "examples",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # What is new: without these two lines it is confluent_kafka.Consumer.
        "fetch.remote.enabled": True,
        "remote.storage.url": tier_url,
    }
)
with consumer:
    consumer.subscribe([topic])
    records, ended = 0, set()
    while (message := consumer.poll(30)) is not None:
        error = message.error()
        if error is None:
            records += 1
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        else:  # the end of a partition, as enable.partition.eof asks for
            ended.add(message.partition())
            if len(ended) == len(consumer.assignment()):
                break
    metrics = consumer.remote_metrics()

print(f"{records} records, {metrics['broker-records-total']} of them through the broker")
print(f"{metrics['remote-fetch-requests-total']} GETs for {metrics['remote-fetch-bytes-total']} bytes")
