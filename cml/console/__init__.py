"""What people see of work in progress: messages, progress bars, amounts as text. Results go to stdout elsewhere."""
