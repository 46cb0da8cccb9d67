"""A real Apache Kafka for the tests: fetched with Maven, or run from its Docker image."""
