"""Online: HTTP in, batches through the lanes, one reply out."""
