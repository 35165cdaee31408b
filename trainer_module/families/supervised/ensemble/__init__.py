"""The default model of tables: a weighted mean of a network, trees and a linear model."""
