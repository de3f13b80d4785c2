// The functions that Python calls by ctypes. They are in the library of the operators, with which they
// share windows, networks and threads.

#ifndef COLLECTIVES_NATIVE_FUNCTIONS_H_
#define COLLECTIVES_NATIVE_FUNCTIONS_H_

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "board.h"
#include "communication.h"
#include "definition.h"

extern "C" {

// Makes a window in zeroed memory that all ranks have mapped; returns its number. `processes` has the
// numbers of the ranks' processes if they may read each other's memory, otherwise it is null. A rank
// reads another one's memory directly only for `least_read` bytes or more. All ranks pass the same
// values, except for `rank`, `spin_seconds` and `bypass_below`.
int collectives_open(char* base, int rank, int ranks, int64_t chunk_bytes, double spin_seconds,
                     bool shares_cores, const int* processes, int64_t least_read,
                     double bypass_below) {
  std::vector<pid_t> readable;
  if (processes != nullptr) readable.assign(processes, processes + ranks);
  return collectives::Communication::Get().Add(std::make_unique<collectives::Window>(
      base, rank, ranks, chunk_bytes, spin_seconds, shares_cores, std::move(readable), least_read,
      bypass_below));
}

// Allows the user's processes to read this process's memory, which Linux's Yama otherwise forbids. A
// new permission replaces the old one. MPI may already have permitted any process, so this permits
// any process, too.
void collectives_let_read() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

// Returns whether this process can read `size` bytes of another process and they equal `bytes`.
bool collectives_reads(int process, const char* there, const char* bytes, int64_t size) {
  std::string copy(size, 0);
  collectives::Reads reads(process);
  reads.Add(copy.data(), there, size);
  try {
    reads.Do();
  } catch (const std::exception&) {
    return false;
  }
  return copy == std::string(bytes, size);
}

// Returns the bytes of a window of `ranks` ranks.
int64_t collectives_window_bytes(int ranks, int64_t chunk_bytes) {
  return collectives::WindowBytes(ranks, chunk_bytes);
}

// Returns the bytes of a board of `ranks` ranks.
int64_t collectives_board_bytes(int ranks) { return collectives::Board::Bytes(ranks); }

// Makes a board in zeroed memory that all ranks have mapped. The board is never freed.
void* collectives_board_open(char* base, int rank, int ranks, double spin_seconds) {
  return new collectives::Board(base, rank, ranks, spin_seconds);
}

// Sets `all` to the messages of all ranks; returns false, at once, if messages are too long.
bool collectives_board_gather(void* board, const char* message, int64_t bytes, char* all) {
  if (bytes > collectives::kNote) return false;
  static_cast<collectives::Board*>(board)->Gather(message, bytes, all);
  return true;
}

void collectives_observe(bool notes, int (*before)(int64_t, char*, int)) {
  collectives::Communication::Get().Observe(notes, before);
  collectives::NetworkCommunication::Get().Observe(notes, before);
}

// Moves at most `room` notes to `notes`, and returns their number.
int64_t collectives_take_notes(collectives::Note* notes, int64_t room) {
  const int64_t count = collectives::Communication::Get().TakeNotes(notes, room);
  auto& network = collectives::NetworkCommunication::Get();
  return count + network.TakeNotes(notes + count, room - count);
}

// Returns the seconds of all collectives for which no note was kept.
double collectives_seconds() {
  return collectives::Communication::Get().seconds() +
         collectives::NetworkCommunication::Get().seconds();
}

// Writes lines "interface address" to `lines`, at most `size` bytes; see `Addresses`.
void collectives_addresses(char* lines, int64_t size) {
  std::strncpy(lines, collectives::Addresses().c_str(), size - 1);
}

// Makes a network of `ranks` ranks with connected sockets, of which it becomes the owner, and returns
// its number. `peers` names the ranks for errors.
int collectives_network_open(int rank, int ranks, const int* files, const char* const* peers) {
  std::vector<collectives::Connection> connections;
  for (int i = 0; i < ranks; ++i) connections.emplace_back(files[i], peers[i]);
  return collectives::NetworkCommunication::Get().Add(
      std::make_unique<collectives::Network>(rank, std::move(connections)));
}

// Returns the number of the collective that runs in a window, or -1; sets `since` to the time of its
// start.
int64_t collectives_running(int window, double* since) {
  const auto place = collectives::Communication::Get().Running(since);
  return place.memory == window ? place.call : -1;
}

// Like `collectives_running`, in a network.
int64_t collectives_network_running(int network, double* since) {
  const auto place = collectives::NetworkCommunication::Get().Running(since);
  return place.memory == network ? place.call : -1;
}

// Runs a collective on float32[rows, columns] outside of a graph, in a network unless `network` is
// -1; any kind but "exchange_sum". The other arguments are attributes of the operator; `ranges` has
// its `sent`, then its `received`. Returns the processor seconds of the collective. If it fails,
// sets `reason`, of at most `room` bytes, to the reason; else to an empty text.
double collectives_run(int window, int network, const char* kind, const int* members, int size,
                       int place, int64_t rows, int64_t columns, int split_dim, int join_dim,
                       const int64_t* ranges, int64_t most_rows, int64_t extent, char* in,
                       char* out, char* reason, int room) {
  collectives::Definition definition;
  definition.kind = kind;
  definition.reducer = "sum";
  definition.fill = std::string(sizeof(float), 0);
  definition.dtype = tensorflow::DT_FLOAT;
  definition.members.assign(members, members + size);
  definition.place = place;
  definition.split_dim = split_dim;
  definition.join_dim = join_dim;
  definition.most_rows = most_rows;
  definition.extent = extent;
  if (definition.exchanges()) {
    definition.sent.assign(ranges, ranges + 2 * size);
    definition.received.assign(ranges + 2 * size, ranges + 4 * size);
  }
  double worked = 0.0;
  auto run = [&](auto& carrier) {
    worked -= collectives::Worked();
    definition.Run(carrier, {rows, columns}, in, out, nullptr);
    worked += collectives::Worked();
  };
  const std::string failure =
      network >= 0 ? collectives::NetworkCommunication::Get().Run(network, -1, run)
                   : collectives::Communication::Get().Run(window, -1, run);
  std::snprintf(reason, room, "%s", failure.c_str());
  return worked;
}

}  // extern "C"

#endif  // COLLECTIVES_NATIVE_FUNCTIONS_H_
