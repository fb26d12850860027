"""The vocabulary: pure values and decisions. No files, sockets, threads, clocks or logging."""
