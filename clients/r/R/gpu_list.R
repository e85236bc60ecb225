# This machine's GPUs, a row each.
gpu_list <- function() {
  process <- start(c("gpus", "--json"))
  on.exit(end(process))
  text <- character()
  while (!is.null(lines <- lines_of(process))) text <- c(text, lines)
  check(process)
  found <- jsonlite::parse_json(paste(text, collapse = "\n"))
  gpus <- Filter(function(device) device$kind == "gpu", found$devices)
  of <- function(get, type) vapply(gpus, get, type)
  mb <- function(bytes) if (is.null(bytes)) NA_real_ else bytes / 2^20
  data.frame(
    gpu_id = of(function(gpu) as.integer(gpu$index), 0L),
    vendor = rep("nvidia", length(gpus)),
    name = of(function(gpu) gpu$name, ""),
    memory_total_mb = of(function(gpu) mb(gpu$memory), 0),
    memory_free_mb = of(function(gpu) mb(gpu$status$memory$free), 0),
    uuid = of(function(gpu) gpu$uuid, "")
  )
}

list_gpus <- gpu_list
