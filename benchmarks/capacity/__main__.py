from benchmarks.capacity.program import main

main()  # not guarded: `make bench` runs what is guarded, and this takes half an hour
