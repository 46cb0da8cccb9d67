"""`audit`: read what the topics hold of a model, and check that it is sound.

The state of a model is spread over topics, and each of them says something about another. The audit holds them against
each other:

    impressions, clicks ───(2)─── training log ───(4)─── snapshots
          │      │                 │    │                    │
          │     (6)               (1)  (5)                  (4)
          │      │                      │                    │
         (3)  group offsets      copied checkpoint ──────────┘
          │
     dead letters

|   | what is held against what                                             | check               | file              |
|---|-----------------------------------------------------------------------|---------------------|-------------------|
| 1 | each record by itself: its checksums, its keys                        | `checksums`         | `log_walk`        |
|   | each tick against the one before: accepted once, by rule R            | `order`             | `log_walk`        |
|   | each mark against the records that it counts                          | `counts`, `balance` | `mark_checks`     |
| 2 | positions of marks against the input topics                           | `positions`         | `inputs_check`    |
|   | resume points against topics and settings                             | `resume_points`     | `inputs_check`    |
|   | examples with a click against the clicks that matched                 | `positives`         | `positives`       |
|   | with `--replay`: examples against those that the inputs give now      | `examples_again`    | `examples_again`  |
| 3 | dead records that marks count against the letters there are           | `dead_letters`      | `dead_letters`    |
| 4 | the shards of the snapshots against each other                        | `snapshots`         | `snapshots_check` |
|   | with `--replay`: each digest against the log, folded again            | `digests_again`     | `digests_again`   |
| 5 | the copied checkpoint: complete, of this model, at a tick of it       | `copied_checkpoint` | `copy_check`      |
| 6 | offsets that the joiners' group has committed against the last mark   | `committed`         | `inputs_check`    |

`run` takes the steps in their order. `request` is what was asked for, `findings` what came of it: a check holds, fails,
or could not be made, and the report says which. Nothing here writes, commits an offset, or joins a group.
"""
