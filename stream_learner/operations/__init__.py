"""The work of the commands that an operator runs.

`cli/` reads arguments and prints results. The work of a command is here: in a module, or in `run` of a package if it
takes several. It gets a checked configuration. It returns plain values, which `--json` prints as they are, or raises an
error with an exit code.

| command                                          | where                   |
|--------------------------------------------------|-------------------------|
| `run`, `join`, `learn`                           | `run`                   |
| `score`                                          | `score`                 |
| `compile`                                        | `compile`               |
| `topics ensure`                                  | `topics`                |
| `rights`                                         | `rights`                |
| `inspect tick`, `inspect record`                 | `inspect_log`           |
| `inspect snapshot`                               | `inspect_model`         |
| `inspect weights`, `inspect feature`             | `inspect_model`         |
| `inspect fields`                                 | `inspect_fields`        |
| `audit`                                          | `audit.run`             |
| `backfill`                                       | `backfill.run`          |
| `doctor`                                         | `doctor.run`            |
| `begin-anew`                                     | `begin_anew`            |
| `delete`                                         | `delete`                |
| `diff`                                           | `diff.run`              |
| `gate status`, `gate policy`                     | `gate`                  |
| `gate accept`, `gate skip`                       | `gate`                  |
| `rewind`                                         | `rewind`                |
| `log skip`                                       | `log_skip`              |
| `promote`, `rollback`                            | `promote.run`           |
| `alias list`, `alias show`, `alias delete`       | `promote.aliases`       |
| `pause`, `resume`, `pin`, `unpin`                | `promote.aliases`       |

Some have a folder elsewhere: `serve` has `roles/scorer/serve/`, `evaluate` has `evaluate/`, `demo` has `demo/`, and
`config check`, `config show` and `config schema` have `config/`.
"""
