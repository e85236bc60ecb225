source("near.R")

square <- function(x) offset + x^2

values <- list(
  scalar = 7L, text = "a \"b\" \\ \n \u00e9", none = NULL, missing = c(1, NA, 3),
  flags = c(TRUE, NA), numbers = c(0.1, 1 / 3, 1e300, 5e-324, -0.0),
  odd = c(NaN, Inf, -Inf), names = c(a = 1, b = 2), one = I(1), empty = list(), object = setNames(list(), character()),
  nested = list(a = list(1, "x"), b = list()), matrix = matrix(1:6, 2), cube = array(1:8, c(2, 2, 2)), bytes = as.raw(c(0, 255)),
  many = as.raw(rep(0, 300)), factor = factor(c("u", "v")), date = as.Date("2026-02-01"), time = as.POSIXct(0.5, origin = "1970-01-01", tz = "UTC"),
  took = as.difftime(2, units = "mins"), frame = data.frame(a = 1:2, b = c("x", NA)), big = 2^53
)
value <- function(name) values[[name]]

echo <- function(x) x

fails <- function(kind) {
  switch(kind,
    stop = inner("no good"),
    class = stop(odd("odd", simpleCondition("before"))),
    quit = quit(status = 3),
    deep = deep(1),
    memory = stop("cannot allocate vector of size 7.5 Gb"),
    unsaid = list(a = list(1, sum)),
    twice = list(a = 1, a = 2),
    warns = { warning("careful"); "fine" },
    says = { cat("said\n"); message("noted"); "fine" }
  )
}
odd <- function(message, parent) {
  structure(list(message = message, call = NULL, parent = parent), class = c("odd_error", "error", "condition"))
}
inner <- function(text) stop(text)
deep <- function(n) deep(n + 1)

tries <- 0
flaky <- function(item) {
  tries <<- tries + 1
  if (tries %% item > 0) stop("try ", tries)
  tries
}

reports <- function(item) {
  gpu_progress(list(step = item))
  gpu_slot()$device
}

until <- function(path) {
  while (!is.null(path) && !file.exists(path)) Sys.sleep(0.01)
  is.null(path)
}

dies <- function(item) if (item == "die") tools::pskill(Sys.getpid(), 6) else item

descriptors <- function(item) length(grep("pipe", system("ls -l /proc/self/fd/3 /proc/self/fd/4 2>/dev/null", intern = TRUE)))

not_a_function <- 7

python <- function(item) {
  run <- reticulate::py_run_string(paste(
    "import os, sys", "room = os.environ.get('GPUMUX_ROOM')", "hooked = any('gpumux' in type(each).__module__ for each in sys.meta_path)",
    "before = any('slot' not in each and each.endswith('gpumux') for each in sys.path)",
    sep = "\n"
  ))
  list(run$room, run$hooked, run$before)
}
