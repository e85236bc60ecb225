# What runs in a slot. The R file of a task has the source of these functions, so that a slot needs no package gpumux.

# The value of an expression, with the messages and warnings that came meanwhile and where they stand in what was printed.
perform <- function(expression) {
  size <- function() {
    flush(stdout())
    file.size("/dev/fd/1")
  }
  begin <- size()
  said <- list()
  keep <- function(condition, text, shown, restart) {
    from <- size()
    cat(shown, file = stderr())
    said[[length(said) + 1L]] <<- list(class = class(condition), message = text, from = from - begin, to = size() - begin)
    invokeRestart(restart)
  }
  value <- withCallingHandlers(expression,
    message = function(m) keep(m, conditionMessage(m), conditionMessage(m), "muffleMessage"),
    warning = function(w) {
      # Others are errors, or ignored.
      if (!getOption("warn") %in% 0:1) return()
      text <- conditionMessage(w)
      call <- conditionCall(w)
      # f is the function itself.
      if (is.call(call) && !identical(call[[1L]], quote(f))) text <- paste0("in ", deparse(call, nlines = 1L)[[1L]], ": ", text)
      keep(w, text, paste0("Warning: ", text, "\n"), "muffleWarning")
    }
  )
  list(value = value, said = said, size = size() - begin)
}

# Continue with a state of the generator of random numbers, unless it is NULL.
draw_from <- function(state) if (!is.null(state)) assign(".Random.seed", state, globalenv())

# Run a call, whose file a cancelled one no longer has, and write what it came to beside it. The worker judges its error.
answer <- function(path) {
  begun <- paste0(path, ".begun")
  if (!file.exists(begun) && !suppressWarnings(file.rename(path, begun))) return(NULL)
  write <- function(outcome) saveRDS(outcome, paste0(path, ".value"), compress = FALSE)
  withCallingHandlers(write(perform({
    call <- readRDS(begun)
    for (package in call$packages) library(package, character.only = TRUE)
    draw_from(call$state)
    call$f()
  })), error = function(e) try(write(list(error = e)), silent = TRUE))
  NULL
}

encode <- function(x) gsub("\n", "", jsonlite::base64_enc(serialize(x, NULL, version = 2L)), fixed = TRUE)
decode <- function(text) unserialize(jsonlite::base64_dec(text))

# The lines of an R file with the function run, which needs these functions of the package.
source_of <- function(names, ...) {
  code <- unlist(lapply(names, function(name) c(paste(name, "<-"), deparse(get(name)))))
  c("# Written by the R package gpumux.", "run <- local({", code, ..., "})")
}
