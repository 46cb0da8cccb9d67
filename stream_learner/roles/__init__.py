"""What runs for ever, a folder for each role: `joiner`, `learner`, `scorer`. A role decides what to do next; `core`
decides what that means, `adapters` how it is done.

No role imports another: they meet in topics. What several of them need is in `common`; `control` is the topic by which
operators speak to them.
"""
