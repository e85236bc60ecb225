# Needs the gpumux command, in GPUMUX_BINARY or on PATH.
if (!nzchar(Sys.getenv("GPUMUX_BINARY")) && !nzchar(Sys.which("gpumux"))) {
  message("skipped: there is no gpumux command")
  quit("no")
}
library(gpumux)
fails <- function(expression) tryCatch({ expression; NULL }, error = identity)

# As lapply, with whatever R has.
twice <- function(x) scale * x
scale <- 2
x <- list(a = 1L, b = c(u = 1.5, v = NA), c = matrix(1:4, 2))
stopifnot(identical(gpu_map(x, twice), lapply(x, twice)))
frames <- list(data.frame(n = 1:2, at = as.Date("2026-02-01") + 0:1), NULL)
stopifnot(identical(gpu_map(frames, identity), frames))
stopifnot(identical(gpu_map(character(), nchar), list()))
stopifnot(identical(gpu_map(1:3, function(x, p, add) add(x^p), 2, add = function(x) x + scale), list(3, 6, 11)))

# Recursion, a closure, and a package that is attached here.
odd <- function(n) if (n == 0) FALSE else even(n - 1)
even <- function(n) if (n == 0) TRUE else odd(n - 1)
adder <- function(n) function(x) x + n
library(stats4)
stopifnot(identical(gpu_map(3:4, odd), list(TRUE, FALSE)), identical(gpu_map(1:2, adder(3)), list(4, 5)))
stopifnot(identical(gpu_map(1, function(x) is.function(mle)), list(TRUE)))

# Methods of this session.
mean.money <- function(x, ...) rate * 100
Ops.money <- function(e1, e2) get(.Generic)(unclass(e1), 10)
rate <- 2
money <- structure(3, class = "money")
priced <- function(i) c(mean(money) * i, money + 1)
stopifnot(identical(gpu_map(1:2, priced), lapply(1:2, priced)), identical(priced(1), c(200, 13)))

# Of two packages that have a name in common, the one that was attached last has it.
packages <- tempfile("packages")
dir.create(packages)
for (name in c("aaa", "zzz")) {
  dir.create(file.path(packages, "from", name, "R"), recursive = TRUE)
  writeLines(c(paste("Package:", name), "Version: 1.0"), file.path(packages, "from", name, "DESCRIPTION"))
  writeLines(sprintf("export(both, of_%s)", name), file.path(packages, "from", name, "NAMESPACE"))
  writeLines(sprintf(c("both <- function() \"%s\"", "of_%s <- function() 1"), name), file.path(packages, "from", name, "R", "all.R"))
  utils::install.packages(file.path(packages, "from", name), packages, repos = NULL, type = "source", quiet = TRUE)
}
.libPaths(c(packages, .libPaths()))
for (name in c("zzz", "aaa")) library(name, character.only = TRUE)
stopifnot(identical(gpu_map(1, function(x) c(both(), of_zzz())), list(c("aaa", "1"))))
detach("package:aaa")
stopifnot(identical(gpu_map(1, function(x) c(both(), of_zzz())), list(c("zzz", "1"))))

# Persistent and fresh.
gpu_daemons(1)
process <- function(x) Sys.getpid()
stopifnot(length(unique(gpu_map(1:3, process))) == 1L)
gpu_daemons(n = 1, worker_type = "proxy", memory_per_worker_mb = 512)
stopifnot(length(unique(gpu_map(1:3, process))) == 3L)
gpu_daemons(0)

# An item that fails costs itself.
error <- fails(gpu_map(1:4, function(x) if (x == 3) stop("three") else if (x == 4) quit() else x))
stopifnot(inherits(error, "gpumux_error"), grepl("^2 of 4 items failed; the first is item 3: task_error: .*: three", error$message))
third <- error$results[[3]]
stopifnot(identical(error$results[1:2], list(1L, 2L)), inherits(third, "gpumux_fault"), grepl("three", third$fault$traceback))

# Random numbers: a stream for each item, whoever runs it, that set.seed() or .seed repeats.
draw <- function(x) c(rnorm(2), sample(100, 1))
by_hand <- function(state, n) {
  kept <- .Random.seed
  on.exit(.Random.seed <<- kept)
  lapply(1:n, function(i) {
    .Random.seed <<- parallel::nextRNGSubStream(state)
    state <<- parallel::nextRNGStream(state)
    draw()
  })
}
gpu_daemons(2)
set.seed(1)
first <- gpu_map(1:6, draw)
second <- gpu_map(1:6, draw)
after <- runif(1)
stopifnot(anyDuplicated(c(first, second)) == 0L, gpu_map(1:6, draw, .seed = 1)[[1]] != first[[1]])
gpu_daemons(1, worker_type = "fresh")
set.seed(1)
stopifnot(identical(gpu_map(1:6, draw), first), identical(gpu_map(1:6, draw), second), identical(runif(1), after))
set.seed(1)
RNGkind("L'Ecuyer-CMRG")
stopifnot(identical(by_hand(.Random.seed, 6), first))
set.seed(2)
expected <- by_hand(.Random.seed, 5)
stopifnot(identical(gpu_map(1:2, draw), expected[1:2]), identical(gpu_map(1:3, draw)[[1]], expected[[3]]))
stopifnot(identical(gpu_map(1:5, draw, .seed = 2), expected))
# After an error the same call has the same numbers; without .seed nothing of the generator moves.
set.seed(2)
error <- fails(gpu_map(1:2, function(x) if (x == 1) draw() else stop("two")))
stopifnot(identical(error$results[[1]], expected[[1]]), identical(gpu_map(1:2, draw), expected[1:2]))
state <- .Random.seed
gpu_map(1:2, draw, .seed = FALSE)
stopifnot(identical(.Random.seed, state), grepl("`.seed` must be", fails(gpu_map(1, draw, .seed = "a"))$message))
RNGkind("default")
gpu_daemons(0)

# Stages: each function has what the one before returned, with the same random numbers whoever runs it.
half <- function(x) if (x == 3) stop("three") else list(x / 2, rnorm(1))
more <- function(pair) if (pair[[1]] == 2) stop("two") else c(pair[[1]] + scale, pair[[2]], rnorm(1))
chained <- function() gpu_map(c(a = 1, b = 2), list(half, more), .pools = c("cpu", "cpu-2"), .seed = 1)
stopifnot(identical(chained(), chained()), identical(names(chained()), c("a", "b")), chained()$b[[1]] == 3)
error <- fails(gpu_map(1:4, list(half, function(x) more(x))))
stopifnot(grepl("^2 of 4 items failed; the first is item 3: task_error: .*: three", error$message))
stopifnot(grepl("two", error$results[[4]]$fault$message), error$results[[1]][[1]] == 2.5)
stopifnot(identical(gpu_map(1:2, list(function(x) NULL, is.null)), list(TRUE, TRUE)))
stopifnot(grepl("further arguments go with one function", fails(gpu_map(1, list(half, more), 2))$message))
stopifnot(grepl("`.pools` must be a pool for each function", fails(gpu_map(1, list(half, more), .pools = "cpu"))$message))

# What an item prints and signals comes here, where it came, in order of the items.
talk <- function(x) {
  cat("begins", x, "\n")
  message("of ", x)
  if (x == 2) log(-1)
  cat(strrep("\u00e9", x * 4000), "ends\n")
  if (x == 3) stop("three")
  x
}
heard <- function(expression) {
  log <- character()
  keep <- function(kind, restart) function(c) {
    # Not the notes of the command.
    if (!startsWith(conditionMessage(c), "note: ")) {
      cat(kind, conditionMessage(c))
      log <<- c(log, class(c)[[1]])
    }
    invokeRestart(restart)
  }
  printed <- capture.output(withCallingHandlers(invisible(fails(expression)),
    message = keep("M:", "muffleMessage"), warning = keep("W:", "muffleWarning")
  ))
  list(printed = sub("\u00e9{100,}", "e", printed), log = log)
}
said <- heard(gpu_map(1:3, talk))
stopifnot(identical(said$log, c("simpleMessage", "simpleMessage", "simpleWarning")))
stopifnot(identical(said$printed[1:3], c("begins 1 ", "M: of 1", "e ends")))
stopifnot(identical(said$printed[4:6], c("begins 2 ", "M: of 2", "W: item 2: in log(-1): NaNs producede ends")))
stopifnot(said$printed[[7]] == "begins 3 ", any(grepl("bytes left out", said$printed)), length(heard(gpu_map(1:2, identity))$printed) == 0L)
error <- NULL
stopifnot(length(heard(error <- fails(gpu_map(1:3, talk, .relay = FALSE)))$printed) == 0L)
stopifnot(grepl("^begins 2 \nof 2\nWarning: in log\\(-1\\): NaNs produced\n", attr(error$results, "output")[[2]]))
stopifnot(startsWith(error$results[[3]]$output, "begins 3"))
stopifnot(identical(gpu_map(1:2, function(x) suppressWarnings(as.integer("a"))), list(NA_integer_, NA_integer_)))

# What cannot be done is said before anything starts.
stopifnot(grepl("`n_workers` must be a whole number", fails(gpu_daemons())$message))
stopifnot(grepl("`memory_per_worker_mb` must be", fails(gpu_daemons(1, memory_per_worker_mb = "a"))$message))
stopifnot(grepl("there is no GPU 99", fails(gpu_daemons(1, gpu_ids = 99))$message))
stopifnot(grepl("needs `memory_per_worker_mb`", fails(gpu_daemons(1, reserve_memory_mb = 1))$message))
stopifnot(grepl("`worker_type` must be \"persistent\" or", fails(gpu_daemons(1, worker_type = "forked"))$message))
stopifnot(grepl("`n_workers` is 100000; a device has 256", fails(gpu_daemons(1e5, gpu_ids = "cpu"))$message))
stopifnot(grepl("`gpu_ids` must be", fails(gpu_daemons(1, gpu_ids = "gpu"))$message))
stopifnot(grepl("`.relay` must be", fails(gpu_map(1, identity, .relay = "no"))$message))
# What the command finds wrong is in the words of this package, too.
mistake <- function(pattern) {
  said <- fails(suppressMessages(gpu_map(1, identity)))
  stopifnot(inherits(said, "gpumux_command"), said$status == 2L, grepl(pattern, said$message), !grepl("--|gpumux:|note: ", said$message))
}
gpu_daemons(1, memory_per_worker_mb = 1e9)
mistake("^`memory_per_worker_mb`: .* is more than .*; lower `memory_per_worker_mb` or `n_workers`$")
gpu_daemons(1, memory_per_worker_mb = 1024, reserve_memory_mb = 1e9)
mistake("^`reserve_memory_mb`: .*; lower `reserve_memory_mb`$")
gpu_daemons(1, gpu_ids = "cpu", memory_per_worker_mb = 128)
greedy <- fails(gpu_map(1, function(x) { held <- rep(1, 1e8); sum(held) }))
stopifnot(grepl("; give `memory_per_worker_mb = [0-9]+` or more .*, or use smaller items$", greedy$message))
gpu_daemons(0)
options(gpumux.pass_env = "A=B")
mistake("^options\\(gpumux.pass_env\\): \"A=B\" is no name")
options(gpumux.pass_env = 5)
stopifnot(grepl("options(gpumux.pass_env) must be names", fails(gpu_map(1, identity))$message, fixed = TRUE))
options(gpumux.pass_env = NULL)
Sys.setenv(HF_TOKEN = "t")
notes <- character()
value <- withCallingHandlers(gpu_map(1, identity), message = function(m) notes <<- c(notes, conditionMessage(m)))
Sys.unsetenv("HF_TOKEN")
stopifnot(any(grepl("does not see HF_TOKEN .*options\\(gpumux.pass_env = c\\(\"HF_TOKEN\"\\)\\)", notes)))

# The words of the earlier package.
stopifnot(names(list_gpus())[1:5] == c("gpu_id", "vendor", "name", "memory_total_mb", "memory_free_mb"))
square <- function(x) x^2
stopifnot(identical(1:2 |> map(in_parallel(\(x) square(x), square = square)), list(1, 4)))

# Nothing is left of what is done.
stopifnot(length(list.files(tools::R_user_dir("gpumux", "cache"))) == 0L)
