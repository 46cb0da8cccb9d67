"""Fuzzing of everything that reads bytes somebody else wrote: `python -m proofs.fuzz TARGET --inputs 1000000 --seed 1`.

A run reads the seed corpus (`corpus/TARGET/`), makes inputs from it, and writes a file for each finding. A finding
is an input that causes a crash, a hang, an exception that is not documented, or that is accepted wrongly. Nothing
outside this package and its tests may import it.

The mutators are our own, structured by format, and not guided by coverage. Coverage guidance (atheris, libFuzzer)
follows the branches of Python's bytecode. The code under test here is machine code from numba, which has no such
branches, and records behind checksums, which random bytes do not pass. Nor would a fuzzer notice that a kernel reads
too far, as long as the bytes behind the input happen to be mapped. Therefore inputs lie at the edge of memory that may
not be touched (`guard`), results are compared with slow decoders written from the documented layouts, and checksums are
corrected after the damage. A batch that fails is narrowed down to one input.

| module         | does                                                                  |
|----------------|-----------------------------------------------------------------------|
| `guard`        | memory between two inaccessible pages                                 |
| `mutate`       | damage to bytes, to numbers in them, to JSON, to sequences of records |
| `target`       | what a target is, and which there are                                 |
| `worker`       | the child process: makes inputs and checks them                       |
| `harness`      | the parent: watches the child, saves what it found, begins it again   |
| `seeds`        | writes the seed corpus                                                |
| `slow_*`       | decoders written from the documented layouts                          |
| `publications` | small models and what was published of them                           |
| `targets/*`    | the targets                                                           |
"""
