"""What errors and logs name: places in Kafka, and the error conditions of Spark. Imports no other package."""
