"""`evaluate`: progressive validation of any number of configurations in one pass over examples."""
