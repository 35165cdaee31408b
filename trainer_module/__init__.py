"""What runs inside Transform and Trainer: preprocessing, models, training and export."""
