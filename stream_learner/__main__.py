"""`python -m stream_learner`: the same as the command `stream-learner`."""

from stream_learner.cli import main

if __name__ == "__main__":
    main()
