# The slots that maps and calls run in: the words that say so to the command, or NULL for its defaults.
daemons <- new.env(parent = emptyenv())
daemons$words <- NULL

gpu_daemons <- function(n_workers, gpu_ids = NULL, memory_per_worker_mb = NULL, reserve_memory_mb = NULL, framework = "none",
                        worker_type = c("persistent", "fresh", "proxy")) {
  types <- c("persistent", "fresh", "proxy")
  if (!is.character(worker_type) || !all(worker_type %in% types)) {
    stop("`worker_type` must be ", paste0("\"", types, "\"", collapse = " or "), call. = FALSE)
  }
  count("n_workers", if (missing(n_workers)) NULL else n_workers, 0)
  if (n_workers == 0) return(choose(NULL))
  if (!is.character(framework) || length(framework) != 1L || is.na(framework)) {
    stop("`framework` must be a name, such as \"tensorflow\"", call. = FALSE)
  }
  gpu_ids <- chosen(gpu_ids, gpu_list()$gpu_id)
  devices <- max(1L, length(gpu_ids))
  if (n_workers > 256 * devices) stop("`n_workers` is ", number(n_workers), "; a device has 256 at most", call. = FALSE)
  if (n_workers %% devices != 0) {
    stop("`n_workers` is ", n_workers, " for ", devices, " GPUs, and each gets as many; give a multiple of ", devices, call. = FALSE)
  }
  memory_per_worker_mb <- unique(memory_per_worker_mb)
  if (!is.null(memory_per_worker_mb)) count("memory_per_worker_mb", memory_per_worker_mb, 1)
  if (!is.null(reserve_memory_mb)) {
    count("reserve_memory_mb", reserve_memory_mb, 0)
    if (is.null(memory_per_worker_mb)) {
      stop("`reserve_memory_mb` needs `memory_per_worker_mb`: a worker without a budget may take everything", call. = FALSE)
    }
  }
  choose(c(
    "--slots", number(n_workers / devices),
    if (length(gpu_ids) > 0L) c("--devices", paste(gpu_ids, collapse = ",")),
    if (!is.null(memory_per_worker_mb)) c("--memory", paste0(number(memory_per_worker_mb), "MiB")),
    if (!is.null(reserve_memory_mb) && reserve_memory_mb > 0) c("--reserve", paste0(number(reserve_memory_mb), "MiB")),
    "--mode", if (worker_type[[1L]] == "persistent") "persistent" else "fresh"
  ))
}

# Run what comes from now on as the words say.
choose <- function(words) {
  if (!is.null(calls$session)) close_session(calls$session)
  daemons$words <- words
  invisible(words)
}

# The GPUs to use of those that are there: all, unless some are asked for, or the CPU.
chosen <- function(gpu_ids, there) {
  if (identical(gpu_ids, "cpu")) return(gpu_ids)
  if (is.null(gpu_ids)) return(there)
  if (!is.numeric(gpu_ids) || length(gpu_ids) == 0L || anyNA(gpu_ids)) {
    stop("`gpu_ids` must be numbers of GPUs, as gpu_list() has them, or \"cpu\"", call. = FALSE)
  }
  unknown <- setdiff(gpu_ids, there)
  if (length(unknown) > 0L) {
    all <- if (length(there) > 0L) paste("gpu_list() has", paste(there, collapse = ", ")) else "this machine has none that can be used"
    stop("there is no GPU ", paste(unknown, collapse = ", "), "; ", all, call. = FALSE)
  }
  unique(gpu_ids)
}

number <- function(x) sprintf("%.0f", x)

# Refuse what is not one whole number from least on.
count <- function(name, x, least) {
  if (!is.numeric(x) || length(x) != 1L || is.na(x) || x != round(x) || x < least) {
    stop("`", name, "` must be a whole number, ", least, " or more", call. = FALSE)
  }
}

# Refuse what is neither TRUE nor FALSE.
whether <- function(name, x) if (!isTRUE(x) && !isFALSE(x)) stop("`", name, "` must be TRUE or FALSE", call. = FALSE)
