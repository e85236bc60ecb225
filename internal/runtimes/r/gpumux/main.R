# The R task process: started by a worker as `Rscript main.R`, with the wire on descriptors 3 and 4.
#
# Owns start and end of the process. Stops when the worker says so or closes the wire.

local({
  file <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[[1]])
  here <- dirname(gsub("~+~", " ", file, fixed = TRUE))
  runtime <- new.env(parent = baseenv())
  for (part in c("wire.R", "value.R", "fault.R", "task.R", "call.R")) sys.source(file.path(here, part), runtime)
  # Warnings belong to the item during which they come.
  options(warn = 1L)
  # SIGINT is the worker's to act on.
  quit("no", suspendInterrupts(runtime$main()))
})
