"""What is run by hand or by CI, and is no part of the product."""
