"""The offline product: from files of examples, or a training log, to figures for any number of configurations.

Each configuration predicts every example before it learns from it (progressive validation), with the same optimizers,
fold and weight table as the streaming learner. All configurations learn side by side in one pass over the data.

    files ── blocks of lines ──▶ a parser for each ──▶ ExampleBlock ──▶ trial A ─▶ figures, curve, predictions
             (files/)            reading (formats/)         │     └───▶ trial B ─▶ figures, curve, predictions
    log  ─── blocks of records ─────────────────────────────┘           …

- A *block* is some whole lines of a file, some rows of a Parquet file, or some records of a training log. Blocks are
  read ahead by one thread and parsed by a few, and reach the trials in their order.
- A *reading* is a way to make features of a block. Configurations of `--learn` share one; each `--vw` command line may
  bring its own. A `TrialGroup` is the trials that share a reading, so that a block is parsed once for each reading.
- An `ExampleBlock` holds the examples of a block as records of the training log, which is what the fold takes.
- A `Trial` is one configuration: its model, the passes it makes, and what is measured in them.

Read in this order: `request` (what is asked for), `plan` (from it to trials and readings), `pipeline` (blocks to
trials), `models` and `measure` (one trial), `outputs` (files written), `run` (an evaluation from beginning to end).
`files/` opens and reads, `formats/` parses without doing I/O, `vw/` stands for Vowpal Wabbit. `cli/evaluate_command`
is the caller; `operations/audit` takes the order of a log from `log_source`.
"""
