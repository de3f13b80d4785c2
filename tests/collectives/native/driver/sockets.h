// The connections of all ranks of a trial to one another.

#ifndef TESTS_COLLECTIVES_NATIVE_DRIVER_SOCKETS_H_
#define TESTS_COLLECTIVES_NATIVE_DRIVER_SOCKETS_H_

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "connections.h"

namespace driver {

// One connection for each pair of ranks. A process keeps the ends of its own rank.
class Sockets {
 public:
  // `buffer_bytes` is the size of the kernel's buffers, 0 for its default.
  Sockets(int ranks, int buffer_bytes) : files_(ranks, std::vector<int>(ranks, -1)) {
    for (int i = 0; i < ranks; ++i) {
      for (int j = 0; j < i; ++j) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) throw std::runtime_error("no sockets.");
        for (int file : pair) {
          if (buffer_bytes == 0) continue;
          setsockopt(file, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
        }
        files_[i][j] = pair[0];
        files_[j][i] = pair[1];
      }
    }
  }
  ~Sockets() {
    for (size_t rank = 0; rank < files_.size(); ++rank) Close(rank);
  }
  Sockets(const Sockets&) = delete;

  // Hands over the connections of a rank.
  std::vector<collectives::Connection> Take(int rank) {
    std::vector<collectives::Connection> connections;
    for (size_t other = 0; other < files_.size(); ++other) {
      const int file = std::exchange(files_[rank][other], -1);
      connections.emplace_back(file, "rank " + std::to_string(other));
    }
    return connections;
  }

  void CloseOthers(int rank) {
    for (int other = 0; other < static_cast<int>(files_.size()); ++other) {
      if (other != rank) Close(other);
    }
  }

 private:
  void Close(int rank) {
    for (int& file : files_[rank]) {
      if (file >= 0) close(std::exchange(file, -1));
    }
  }

  std::vector<std::vector<int>> files_;  // of each rank, by the rank at the other end
};

}  // namespace driver

#endif  // TESTS_COLLECTIVES_NATIVE_DRIVER_SOCKETS_H_
