"""BERT: a Transformer encoder over word pieces (Devlin et al., 2018, arXiv:1810.04805)."""
