"""The join of one partition: impressions and clicks become examples, tick by tick."""
