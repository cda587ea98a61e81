import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.*;

/**
 * LocalTieredStorage as a store that is farther away: each request waits, and its body comes at a limited speed.
 *
 * `rsm.config.latency.ms` is the time until the first byte, `rsm.config.bytes.per.second` the speed of one request.
 */
public final class SlowStorage implements RemoteStorageManager {
    private final LocalTieredStorage store = new LocalTieredStorage();
    private long latencyMs;
    private double bytesPerNano;

    @Override
    public void configure(Map<String, ?> configs) {
        store.configure(configs);
        latencyMs = Long.parseLong(configs.get("latency.ms").toString());
        bytesPerNano = Long.parseLong(configs.get("bytes.per.second").toString()) / 1e9;
    }

    @Override
    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        return store.copyLogSegmentData(segment, data);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return slow(store.fetchLogSegment(segment, start));
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
            throws RemoteStorageException {
        return slow(store.fetchLogSegment(segment, start, last));
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return slow(store.fetchIndex(segment, type));
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        store.deleteLogSegmentData(segment);
    }

    @Override
    public void close() throws IOException {
        store.close();
    }

    private InputStream slow(InputStream body) throws RemoteStorageException {
        pause(latencyMs * 1_000_000);
        return new SlowBody(body, bytesPerNano);
    }

    private static void pause(long nanos) throws RemoteStorageException {
        try {
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RemoteStorageException(error);
        }
    }

    /** A body of which no more has been read than its speed allows. */
    private static final class SlowBody extends FilterInputStream {
        private final long beganNanos = System.nanoTime();
        private final double bytesPerNano;
        private long taken;

        SlowBody(InputStream body, double bytesPerNano) {
            super(body);
            this.bytesPerNano = bytesPerNano;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            int count = super.read(into, offset, length);
            if (count <= 0) return count;
            taken += count;
            long ahead = (long) (taken / bytesPerNano) - (System.nanoTime() - beganNanos);
            try {
                if (ahead > 0) pause(ahead);
            } catch (RemoteStorageException error) { throw new IOException(error); }
            return count;
        }
    }
}
