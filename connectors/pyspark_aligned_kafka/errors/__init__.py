"""What errors say: faults in bytes, places in Kafka, and the error conditions of Spark. Imports no other package."""
