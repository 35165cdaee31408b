"""The store of ML Metadata: a SQLite file, a MySQL database or a gRPC service."""
