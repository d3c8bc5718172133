"""What is obviously right: rows merged one by one. Kernels and engines are compared with it."""
