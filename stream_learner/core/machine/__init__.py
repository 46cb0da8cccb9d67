"""Kernels, and what they are made of: memory, hashing, arithmetic, a table of ids.

What a kernel is. A kernel is a Python function over integers, floats, addresses and arrays that numba compiles to
machine code on its first call. It runs without the GIL, without fast-math and without fused multiply-add, so that
the same input gives the same bits on every machine. `entries.entry` makes one that Python calls; it is compiled for the
types of its annotations, before a role's first event (`core.parts`). The others are called by kernels alone, and
compiled with them: `kernels.kernel` makes one; `kernels.inlined` one that is laid into its callers, for the steps of
hot loops; `kernels.copied` one whose source is copied into them. Each is numba's `njit`: only the cache below is made
of what numba keeps private (docs/adr/0023).

Where machine code is kept. Compiling the kernels of a role takes up to 20 seconds, so machine code is kept on disk.
Machine code of a kernel contains the machine code of the kernels that it calls, also of those in other files. So it
must count as current only while none of these files has changed:

    core/**/*.py                  ┐
    evaluate/formats/**/*.py      ┴─ names and contents ─ SHA-256 ─▶ stamp
                                                                       │
                                                                       ▼
    folder of machine code:  stamp of the file  == stamp of the package ?  load : compile and keep

Every folder that holds kernels must be named in `kernels.KERNEL_FOLDERS`; otherwise a change in it would run with old
machine code. Each file of machine code ends with a CRC32; a damaged file counts as absent. Processes that start
together with an empty folder take turns, so that one compiles and the others load. A wheel can carry machine code
(`carried`): it is looked for first.

Addresses. An array that one kernel hands to another costs reference counting; an int64 costs nothing. The decoder is
four to five times faster with addresses (docs/adr/0009). So the hot kernels take addresses of arrays, and load and
store with `memory`. Nothing checks such an address: the caller keeps the array alive, and the kernel bounds every
offset before it uses it. A kernel that runs once a batch takes arrays.

Read `kernels` and `entries`, then `memory`. `hashing` is XXH64, whose results other programs compute too; `arithmetic`
has exp, log and their relatives in one fixed order of operations; `atomics` has words that several threads share;
`id_table` is the hash table of the join. Every other folder of `core` and both folders of formats use them. `checksum`
is no kernel: it is the CRC-32 of what is stored.
"""
