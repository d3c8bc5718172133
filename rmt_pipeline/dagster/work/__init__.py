"""Workers: the jobs that work on queues, and the sensors that start them."""
