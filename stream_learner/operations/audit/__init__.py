"""`audit`: whether what the topics hold of a model is sound."""
