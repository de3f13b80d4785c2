// The TCP connections of this process to other ranks: sending and receiving without waiting.
//
// Python connects the sockets, checks who has answered, and passes the file descriptors on. An error
// names the rank and the host at the other end.

#ifndef COLLECTIVES_NATIVE_CONNECTIONS_H_
#define COLLECTIVES_NATIVE_CONNECTIONS_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace collectives {

struct Span {
  char* base = nullptr;
  int64_t bytes = 0;
};
using Pieces = std::vector<Span>;

// A connected socket. The kernel chooses the sizes of its buffers while it runs.
class Connection {
 public:
  // Takes over the socket `file`; -1 for no connection. `peer` is for errors: "rank 3 on host m2".
  Connection(int file, std::string peer) : file_(file), peer_(std::move(peer)) {
    if (file_ < 0) return;
    const int on = 1;
    setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(file_, F_SETFL, fcntl(file_, F_GETFL) | O_NONBLOCK);
  }
  Connection(Connection&& other) noexcept
      : file_(std::exchange(other.file_, -1)), peer_(std::move(other.peer_)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (file_ >= 0) close(file_);
  }

  int file() const { return file_; }

  // Sends pieces one after another. `ready` is the number of bytes that can be sent: if the pieces are
  // the first of these, the system waits with a packet that is not full for the next call. Returns the
  // number of bytes sent: 0 if the socket takes none at present.
  int64_t Send(const Pieces& pieces, int64_t ready) const {
    std::vector<iovec> parts;
    for (const Span& piece : pieces) {
      parts.push_back({piece.base, static_cast<size_t>(piece.bytes)});
      ready -= piece.bytes;
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const int more = ready > 0 ? MSG_MORE : 0;
    const ssize_t sent = sendmsg(file_, &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
    if (sent >= 0) return sent;
    if (!MayRetry(errno)) Fail(std::strerror(errno));
    return 0;
  }

  // Returns the number of bytes received: 0 if none have arrived.
  int64_t Receive(char* to, int64_t bytes) const {
    const ssize_t received = recv(file_, to, bytes, MSG_DONTWAIT);
    if (received > 0) return received;
    if (received == 0) Fail("the other process has closed it");
    if (!MayRetry(errno)) Fail(std::strerror(errno));
    return 0;
  }

  // Fails if the socket has an error.
  void Check() const {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) Fail(std::strerror(error));
  }

 private:
  static bool MayRetry(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
  }

  [[noreturn]] void Fail(const std::string& reason) const {
    throw std::runtime_error("a connection between ranks lasts as long as the job. Got an end of the "
                             "connection to " + peer_ + " (" + reason +
                             "): look for the error of that rank.");
  }

  int file_;
  std::string peer_;
};

// Waits until a socket can do one of the events that it is polled for. Fails if a connection is lost.
// `polled` has one entry for each connection.
inline void Poll(std::vector<pollfd>& polled, const std::vector<const Connection*>& connections) {
  if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
    throw std::runtime_error(std::string("sockets can be polled. Got: ") + std::strerror(errno));
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & POLLERR) != 0) connections[i]->Check();
  }
}

// Returns lines "interface address" for all addresses of this machine that other machines may reach.
inline std::string Addresses() {
  std::string lines;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return lines;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const bool is_old = family == AF_INET;
    const auto* six = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
    if (!is_old && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
    char host[NI_MAXHOST];
    const socklen_t size = is_old ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    lines += std::string(each->ifa_name) + " " + host + "\n";
  }
  freeifaddrs(first);
  return lines;
}

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_CONNECTIONS_H_
