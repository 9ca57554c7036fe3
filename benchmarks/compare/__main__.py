from benchmarks.compare.program import compare

compare(prog_name="python -m benchmarks.compare")  # not guarded: `make bench` runs what is guarded
