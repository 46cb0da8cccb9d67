"""The roles, which run for ever, a folder for each: `joiner`, `learner`, `scorer`. A role decides what to do next;
`core` decides what that means, `adapters` how it is done.

No role imports another: they meet in topics. What several of them need is in `common`; `control` is the topic by which
operators speak to them.
"""
