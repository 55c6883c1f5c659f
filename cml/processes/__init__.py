"""The processes of a job and what they run on: how they were started, what they exchange, devices, memory."""
