from benchmarks.gpu.program import main

main()  # not guarded: `make bench` runs what is guarded, and this wants a GPU
