"""`llmgw demo`: a whole fleet on one machine, with made-up hardware and real everything else."""
