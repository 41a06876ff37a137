// Where the bodies of operations run: in the thread that waits, or, when the program is watched by ThreadSanitizer, in
// a thread for each stream, so that the checker sees streams as the threads that they are. Needs the lock.
#pragma once

#include <cstdint>
#include <functional>

namespace cudasim {

// Runs work for a stream and returns when it is done. work must not throw. The lock counts as held inside work.
void run_for_stream(int device, std::int64_t stream_number, const std::function<void()>& work);
// Called when a stream is made: what the program does later must not seem ordered with the stream's work.
void prepare_stream(int device, std::int64_t stream_number);

}  // namespace cudasim
