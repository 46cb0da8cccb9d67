"""Who does what the papers say: this project, and where they are installed Vowpal Wabbit and River.

In: laws of the algorithms, each with its source. Out: a table, and by example what each subject did.
"""
