"""RemoteConsumer: a `confluent_kafka.Consumer` that reads tiered data from the store."""
