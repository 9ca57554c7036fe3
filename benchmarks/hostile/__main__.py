from benchmarks.hostile.program import main

main()  # not guarded: `make bench` runs what is guarded, and this takes most of an hour
