import java.util.StringJoiner;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/** Writes each error of the protocol as a line: code, name, exception and its ancestors up to ApiException. */
public class ErrorsOracle {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            if (error == Errors.NONE) {
                continue;
            }
            StringJoiner line = new StringJoiner("\t");
            line.add(String.valueOf(error.code())).add(error.name());
            Class<?> type = error.exception().getClass();
            while (type != ApiException.class && type != Object.class) {
                line.add(type.getSimpleName());
                type = type.getSuperclass();
            }
            System.out.println(line);
        }
    }
}
