"""What is slow, full, absent, or told to stop: roles on a real Kafka of their own."""
