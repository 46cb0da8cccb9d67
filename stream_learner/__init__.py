"""An online learner for click-through rates that lives on Kafka."""

__version__ = "0.1.0"
