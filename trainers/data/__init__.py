"""What is trained on: tasks that make prompts, the text codec, models, and the batches that learners get."""
