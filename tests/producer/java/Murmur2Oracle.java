import java.io.DataInputStream;
import java.io.PrintStream;
import org.apache.kafka.common.utils.Utils;

/** Reads byte strings (length, bytes) and prints Utils.murmur2 of each. */
public class Murmur2Oracle {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false);
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            byte[] data = new byte[in.readInt()];
            in.readFully(data);
            out.println(Utils.murmur2(data));
        }
        out.flush();
    }
}
