gpu_map <- function(x, f, ...) {
  name <- if (is.name(substitute(f))) as.character(substitute(f)) else "f"
  over(x, match.fun(f), list(...), name, c(daemons$words))
}

# The results of f over x in slots as the words say.
over <- function(x, f, more, name, words) {
  items <- if (!is.vector(x) || is.object(x)) as.list(x) else x
  results <- stats::setNames(vector("list", length(items)), names(items))
  if (length(items) == 0L) return(results)
  folder <- task_of(f, more, name, items)
  file <- file.path(folder, paste0(safe(name), ".R"))
  asked <- c("map", paste0(file, ":run"), "--in", file.path(folder, "items.jsonl"), "--local", "--out", "-", pass(), words)
  lines <- tryCatch(run(asked), gpumux_command = function(e) {
    # The call itself was wrong: there is nothing to go on with.
    if (e$status == 2L * 256L) unlink(folder, recursive = TRUE)
    stop(e)
  })
  failed <- list()
  for (line in lines) {
    row <- jsonlite::parse_json(line)
    i <- row$index + 1L
    if (is.null(row$fault)) {
      # A result that is NULL has its place, too.
      results[i] <- list(decode(row$value))
    } else {
      results[[i]] <- fault(i, row$fault)
      failed <- c(failed, results[i])
    }
  }
  unlink(folder, recursive = TRUE)
  if (length(failed) > 0L) {
    stop(structure(class = c("gpumux_error", "error", "condition"), list(
      message = sprintf("%d of %d items failed; the first is %s", length(failed), length(items), conditionMessage(failed[[1L]])),
      call = NULL, results = results
    )))
  }
  results
}

# The condition in the place of the result of an item that failed.
fault <- function(i, fields) {
  what <- paste(c(fields$kind, fields$class, fields$message), collapse = ": ")
  text <- paste(c(sprintf("item %d: %s", i, what), fields$hint), collapse = "; ")
  structure(class = c("gpumux_fault", "error", "condition"), list(message = text, call = NULL, fault = fields))
}

# Environment variables of this session that the functions see, beside those that every task has.
pass <- function() {
  names <- unique(c("HOME", grep("^RETICULATE_", names(Sys.getenv()), value = TRUE), getOption("gpumux.pass_env")))
  c("--pass-env", paste(names, collapse = ","))
}

# The folder of the task and its items. Its name is a hash of them, so that the same call, after a crash too, finds its map.
task_of <- function(f, more, name, items) {
  cache <- tools::R_user_dir("gpumux", "cache")
  dir.create(cache, recursive = TRUE, showWarnings = FALSE)
  made <- tempfile("new-", cache)
  dir.create(made, mode = "0700")
  on.exit(unlink(made, recursive = TRUE))
  carried <- carry(one(f, more))
  saveRDS(carried$f, file.path(made, "function.rds"), version = 2L)
  writeLines(paste0('"', vapply(items, encode, ""), '"'), file.path(made, "items.jsonl"))
  hash <- tools::md5sum(file.path(made, "function.rds"))[[1L]]
  writeLines(c(
    "# Written by gpu_map() of the R package gpumux.",
    sprintf("library(%s)", carried$packages),
    "run <- local({",
    # The hash makes another function another edition of this file.
    sprintf("  f <- readRDS(\"function.rds\") # %s", hash),
    "  function(item) {",
    "    x <- unserialize(jsonlite::base64_dec(item))",
    "    gsub(\"\\n\", \"\", jsonlite::base64_enc(serialize(f(x), NULL)), fixed = TRUE)",
    "  }",
    "})"
  ), file.path(made, paste0(safe(name), ".R")))
  files <- sort(list.files(made, full.names = TRUE))
  writeLines(tools::md5sum(files), file.path(made, "sums"))
  folder <- file.path(cache, tools::md5sum(file.path(made, "sums"))[[1L]])
  # One that is there is of the same call, and a map may run in it.
  if (!dir.exists(folder) && !file.rename(made, folder)) stop("cannot make ", folder, call. = FALSE)
  folder
}

# f as a function of one argument, with the others in it.
one <- function(f, more) {
  if (length(more) == 0L) return(f)
  each <- paste0("more", seq_along(more))
  call <- as.call(c(list(quote(f), quote(x)), stats::setNames(lapply(each, as.name), names(more))))
  env <- list2env(c(list(f = f), stats::setNames(more, each)), parent = globalenv())
  eval(call("function", as.pairlist(alist(x = )), call), env)
}

encode <- function(x) gsub("\n", "", jsonlite::base64_enc(serialize(x, NULL, version = 2L)), fixed = TRUE)
decode <- function(text) unserialize(jsonlite::base64_dec(text))
safe <- function(name) gsub("[^A-Za-z0-9_.]", "_", name)
