# Streams of random numbers: one for each item, whatever slot runs it, when and how often. They are those of future.apply.

# A state of the generator for each of n items, and `after`, the session's own when they are used up; NULL for none. TRUE takes them from
# the session's generator. Where nothing has set or used that, nothing can be repeated either, and processes seed themselves.
streams <- function(n, seed) {
  if (!isTRUE(seed) && !isFALSE(seed) && !(is.numeric(seed) && length(seed) == 1L && is.finite(seed))) {
    stop("`.seed` must be TRUE, FALSE or a number for set.seed()", call. = FALSE)
  }
  session <- get0(".Random.seed", globalenv(), inherits = FALSE)
  if (isFALSE(seed) || isTRUE(seed) && is.null(session)) return(NULL)
  kind <- RNGkind()
  on.exit({
    suppressWarnings(RNGkind(kind[[1L]], kind[[2L]], kind[[3L]]))
    set_state(session)
  })
  own <- isTRUE(seed) && kind[[1L]] == "L'Ecuyer-CMRG"
  if (!own) RNGkind("L'Ecuyer-CMRG")
  if (!isTRUE(seed)) set.seed(seed)
  state <- get(".Random.seed", globalenv())
  states <- vector("list", n)
  for (i in seq_len(n)) {
    states[[i]] <- parallel::nextRNGSubStream(state)
    state <- parallel::nextRNGStream(state)
  }
  after <- session
  if (own) after <- state
  if (isTRUE(seed) && !own) {
    set_state(session)
    sample.int(1L)
    after <- get(".Random.seed", globalenv())
  }
  list(states = states, after = after)
}

# Give the session's generator a state, or none.
set_state <- function(state) {
  if (!is.null(state)) assign(".Random.seed", state, globalenv())
  else if (exists(".Random.seed", globalenv(), inherits = FALSE)) rm(".Random.seed", envir = globalenv())
}
